"""The worker process of the verifier: it compares by many digits what exact arithmetic leaves undecided."""

from same_answer import arithmetic, compare, process

# Compared once before the first request, which then finds compiled patterns and warm caches.
FIRST_FORMULA = (
    r"\lfloor\frac{2n-1}{5}\rfloor+x_{1}\cdot\log_{2}(n)!+3\sqrt{x}-m_{p}c^{2}\cos(\omega t-\frac{\pi}{4})=0"
)


def robust(gold: str, answer: str) -> bool:
    try:
        return compare.same(gold, answer, digits=True)
    except RecursionError:
        raise process.NoVerdict("too_large") from None


def alone(gold: str, _: str) -> bool:
    """True once the gold was compared with itself: an answer that takes much longer is at fault."""
    compare.with_itself(gold)
    return True


GRADERS: process.Graders = {"robust": robust, "alone": alone}

if __name__ == "__main__":
    arithmetic.MAX_BITS = 400_000  # there is time here
    process.serve(GRADERS, prepare=lambda: robust(FIRST_FORMULA, "0"))
