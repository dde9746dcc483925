"""Exception types of the package.

Invalid arguments raise ``ValueError`` or ``TypeError`` (or a subclass below); a failed run raises
an :class:`AisimError`. Messages contain the reference's wording where there is one.
"""


class AisimError(Exception):
    """A replay that cannot be built or cannot continue."""


class SpecError(AisimError, ValueError):
    """An invalid specification; the message gives field path, given value and allowed values."""


class WorkloadError(AisimError, ValueError):
    """An invalid trace or request table; the message gives file and line, or the request."""


class NoRequestsError(WorkloadError):
    """Generated traffic without any request."""


class UnsupportedError(AisimError, NotImplementedError):
    """A valid setting that this version of the replay does not support."""


class ReplayError(AisimError, RuntimeError):
    """A failed run: stuck requests, no worker to place a request on, misuse of the API."""


class InternalError(AisimError, RuntimeError):
    """An internal fault of this package that ends the run."""


class TableFullError(Exception):
    """Raised by compiled code that needs a free row in a full table; names the table.

    It never leaves the package: the run reports it as an :class:`InternalError`.
    """
