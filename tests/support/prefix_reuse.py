"""What requests reuse if they run one after the other on one engine with room for everything."""

from aisim_gym.workload import PromptBlocks, RequestTable


def serial_reuse(requests: RequestTable, blocks: PromptBlocks, arrivals: list[float]) -> list[int]:
    """Return the reused input tokens of each request, run in order of the given arrivals.

    Complete blocks of all tokens but the last one stay in the cache. The last input token is
    always computed, unless nothing is to be generated.
    """
    cached: set[int] = set()
    reused = [0] * len(requests)
    for index in sorted(range(len(requests)), key=lambda index: arrivals[index]):
        inputs, outputs = int(requests.input_tokens[index]), int(requests.output_tokens[index])
        num_written = inputs + max(outputs - 1, 0)
        identities = blocks.identities(index, num_written // blocks.block_size).tolist()
        usable = (inputs - min(outputs, 1)) // blocks.block_size
        hits = 0
        while hits < usable and identities[hits] in cached:
            hits += 1
        reused[index] = hits * blocks.block_size
        cached.update(identities)
    return reused
