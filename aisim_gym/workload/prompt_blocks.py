"""Identities of engine blocks, computed once when a workload is loaded.

A hash id stands for ``trace_block_size`` equal tokens (workloads.md §3.2); a complete engine block
is identified by all tokens up to its end (engine-vllm-trtllm.md §5.1). So two requests share engine
block k if and only if both prompts contain it completely and agree in the hash ids of every trace
block that begins before its end: ceil((k + 1) * block_size / trace_block_size) of them.

Sorted by those ids (then by number of blocks), requests with a common prefix are neighbours: every
block that a request shares is shared with its predecessor or its successor.

If outputs can be shared too, ``token_chains.py`` compares the tokens themselves.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from aisim_gym.workload.ragged import offsets_of
from aisim_gym.workload.request_table import RequestTable
from aisim_gym.workload.token_chains import number_known_blocks


@dataclass(frozen=True, eq=False)
class PromptBlocks:
    """Identity of every complete engine block of every request, as integers.

    Block k of request i is ``contents[content_start[i] + k]`` for k < ``shared_blocks[i]`` and
    ``private_base[i] + k - shared_blocks[i]`` beyond, up to (input + output) // block_size blocks,
    which includes blocks completed by generated tokens. Equal identities mean equal tokens up to
    the end of the block.

    Outputs have their planned length. A turn that emits less changes the contents of all later
    turns of its session in the same way, so their identities still tell which blocks are shared.

    The arrays are contiguous and writable (read-only arrays are a different type to Numba), and
    belong to the caller.

    Attributes:
        contents: Identities 0 .. num_shared - 1, int64, all requests one after the other.
        content_start: Shape (requests,), int64, index into ``contents``.
        shared_blocks: Shape (requests,), int64: leading complete blocks shared with at least one
            other request. They are in the prompt, unless the content of outputs is known or the
            next turn continues them.
        private_base: Shape (requests,), int64: identity of the first private block.
        num_shared: Number of identities used in ``contents``, numbered by first appearance in the
            order of the request table.
        num_contents: Number of all identities, shared and private.
        block_size: Tokens per engine block.
    """

    contents: NDArray[np.int64]
    content_start: NDArray[np.int64]
    shared_blocks: NDArray[np.int64]
    private_base: NDArray[np.int64]
    num_shared: int
    num_contents: int
    block_size: int

    def identities(self, request: int, num_blocks: int) -> NDArray[np.int64]:
        """Return the identities of the first ``num_blocks`` complete blocks of a request."""
        start, base = int(self.content_start[request]), int(self.private_base[request])
        shared = min(int(self.shared_blocks[request]), num_blocks)
        private = np.arange(base, base + num_blocks - shared)
        return np.concatenate((self.contents[start : start + shared], private))


def build_prompt_blocks(requests: RequestTable, block_size: int) -> PromptBlocks:
    """Return the identities of the engine blocks of all requests; equal numbers are equal blocks.

    Args:
        requests: The request table.
        block_size: Tokens per engine block, >= 1; it need not divide the trace block size.

    Raises:
        ValueError: If ``block_size`` is less than 1.
    """
    if block_size < 1:
        raise ValueError(f"block_size: got {block_size}, allowed: an integer >= 1")
    if requests.is_delta or requests.output_starts.size:
        contents, shared_blocks = _share_chains(requests, block_size)
    else:
        contents, shared_blocks = _share_prompts(requests, block_size)
    num_shared = _renumber_by_first_appearance(contents)
    private_blocks = (requests.input_tokens + requests.output_tokens) // block_size - shared_blocks
    return PromptBlocks(
        contents=contents,
        content_start=np.cumsum(shared_blocks) - shared_blocks,
        shared_blocks=shared_blocks,
        private_base=num_shared + np.cumsum(private_blocks) - private_blocks,
        num_shared=num_shared,
        num_contents=num_shared + int(private_blocks.sum()),
        block_size=block_size,
    )


def _share_chains(
    requests: RequestTable, block_size: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return identities and number of the shared leading blocks, by tokens."""
    numbers, starts = number_known_blocks(requests, block_size)
    is_shared = np.bincount(numbers)[numbers] > 1
    return numbers[is_shared], np.diff(offsets_of(is_shared)[starts])


def _share_prompts(
    requests: RequestTable, block_size: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return identities and number of the shared leading blocks, by hash ids."""
    shared_blocks = np.zeros(len(requests), np.int64)
    covered_tokens = np.diff(requests.prompt_starts) * requests.trace_block_size
    known_blocks = np.minimum(requests.input_tokens, covered_tokens) // block_size
    candidates = np.flatnonzero(known_blocks)
    order, common = _sort_by_prefix(requests, candidates, known_blocks, block_size)
    if order.size:
        shared_blocks[order] = np.maximum(common, np.append(common[1:], 0))
    return _fill_contents(order, common, shared_blocks), shared_blocks


def _sort_by_prefix(
    requests: RequestTable,
    candidates: NDArray[np.int64],
    known_blocks: NDArray[np.int64],
    block_size: int,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the candidates sorted by prompt, and the blocks each shares with the previous one.

    The second array has a 0 for the first candidate.
    """
    trace_block = requests.trace_block_size
    starts = requests.prompt_starts[candidates]
    blocks = known_blocks[candidates]
    # Only hash ids within complete blocks count: the tail of a prompt has no identity.
    lengths = -(-blocks * block_size // trace_block)
    # Big-endian bytes compare like the numbers, and a prefix sorts before its extensions.
    text = requests.prompt_ids.astype(">i8").tobytes()
    begins, ends = (8 * starts).tolist(), (8 * (starts + lengths)).tolist()
    keys = [
        (text[begin:end], count)
        for begin, end, count in zip(begins, ends, blocks.tolist(), strict=True)
    ]
    order = np.array(sorted(range(len(keys)), key=keys.__getitem__), np.int64)
    starts, lengths, blocks = starts[order], lengths[order], blocks[order]
    common_ids = _common_prefix_lengths(requests.prompt_ids, starts, lengths)
    common = common_ids * trace_block // block_size
    common[1:] = np.minimum(common[1:], np.minimum(blocks[1:], blocks[:-1]))
    return candidates[order], common


def _common_prefix_lengths(
    ids: NDArray[np.int64], starts: NDArray[np.int64], lengths: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return how many leading ids each slice of ``ids`` shares with the previous slice."""
    common = np.zeros(starts.size, np.int64)
    limits = np.minimum(lengths[1:], lengths[:-1])
    ends = np.cumsum(limits)
    firsts = ends - limits
    # Position p of the comparison, counted over all pairs, is id p - firsts[pair] of both slices.
    offsets = np.arange(ends[-1] if ends.size else 0)
    differs = (
        ids[offsets + np.repeat(starts[1:] - firsts, limits)]
        != (ids[offsets + np.repeat(starts[:-1] - firsts, limits)])
    )
    differences = np.append(np.flatnonzero(differs), offsets.size)
    first_difference = differences[np.searchsorted(differences, firsts)]
    common[1:] = np.minimum(first_difference, ends) - firsts
    return common


def _fill_contents(
    order: NDArray[np.int64], common: NDArray[np.int64], shared_blocks: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return an identity for each shared block, concatenated over requests.

    A request copies the identities that it shares with the previous request in sorted order and
    gets new ones for the rest.
    """
    content_start = np.cumsum(shared_blocks) - shared_blocks
    contents = np.empty(int(shared_blocks.sum()), np.int64)
    num_shared = 0
    previous_start = 0
    sharing = shared_blocks[order] > 0
    rows = order[sharing]
    for start, shared, same in zip(
        content_start[rows].tolist(),
        shared_blocks[rows].tolist(),
        common[sharing].tolist(),
        strict=True,
    ):
        contents[start : start + same] = contents[previous_start : previous_start + same]
        new = shared - same
        contents[start + same : start + shared] = np.arange(num_shared, num_shared + new)
        num_shared += new
        previous_start = start
    return contents


def _renumber_by_first_appearance(contents: NDArray[np.int64]) -> int:
    """Renumber identities in place by first appearance, from 0, and return their number."""
    limit = int(contents.max(initial=-1)) + 1
    # Of several values stored at one index, NumPy keeps the last: here the first appearance.
    first = np.full(limit, contents.size)
    first[contents[::-1]] = np.arange(contents.size - 1, -1, -1)
    number = np.empty(limit, np.int64)
    number[np.argsort(first, kind="stable")] = np.arange(limit)
    contents[:] = number[contents]
    return int(np.count_nonzero(first < contents.size))
