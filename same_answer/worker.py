"""The worker process of the verifier: it compares by many digits what exact arithmetic leaves undecided."""

from functools import partial

from same_answer import arithmetic, compare, process

# Compared once before the first request, which then finds compiled patterns and warm caches.
FIRST_FORMULA = (
    r"\lfloor\frac{2n-1}{5}\rfloor+x_{1}\cdot\log_{2}(n)!+3\sqrt{x}-m_{p}c^{2}\cos(\omega t-\frac{\pi}{4})=0"
)

if __name__ == "__main__":
    arithmetic.MAX_BITS = 400_000  # there is time here
    robust = partial(compare.same, digits=True)
    process.serve({"robust": robust}, prepare=lambda: robust(FIRST_FORMULA, "0"))
