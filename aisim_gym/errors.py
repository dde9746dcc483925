"""What can go wrong, as exception types.

Bad arguments raise ``ValueError`` or ``TypeError`` (or a subclass below); a run that went wrong
raises an :class:`AisimError`. Where the reference has a wording, the message contains it.
"""


class AisimError(Exception):
    """A replay that cannot go on or cannot be built."""


class SpecError(AisimError, ValueError):
    """A specification that is not valid: names the field path, what was given, what is allowed."""


class WorkloadError(AisimError, ValueError):
    """A trace or request table that is not valid: names file and line, or the request."""


class NoRequestsError(WorkloadError):
    """Generated traffic in which not a single request arrives."""


class UnsupportedError(AisimError, NotImplementedError):
    """A valid setting that this version of the replay does not run."""


class ReplayError(AisimError, RuntimeError):
    """A run that broke: stuck requests, no worker to place a request on, misuse of the API."""


class InternalError(AisimError, RuntimeError):
    """A fault of this package, found before it could do harm; the run cannot go on."""


class TableFullError(Exception):
    """Raised by compiled code that takes a row of a table without a free one; names the table.

    Never leaves the package: the run reports it as an :class:`InternalError`.
    """
