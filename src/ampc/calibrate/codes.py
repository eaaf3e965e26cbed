"""The long forms of the codes of `ampc calibrate`."""

from ampc.explanation import Explanation

CODES: dict[str, Explanation] = {
    "AMP940": Explanation(
        "not the name of a target file",
        "`--target` tells a file from a bundled target by its ending, so `ampc calibrate` writes only files that have it.",
        "ampc calibrate -o here",
        "ampc calibrate -o here.toml",
    ),
    "AMP941": Explanation(
        "nothing to calibrate",
        "With `NUMBA_DISABLE_JIT=1` the engine runs as plain Python, for tests and debuggers. Its times say nothing of a real run.",
        "NUMBA_DISABLE_JIT=1 ampc calibrate",
        "ampc calibrate",
    ),
    "AMP942": Explanation(
        "more cores than there are",
        "All cores that the target is to have are measured at work together, so there must be as many. For a target of another size, copy "
        "`cpu.toml` and change `count`.",
        "ampc calibrate --cores 64        # on 8 cores",
        "ampc calibrate --cores 8",
    ),
}
