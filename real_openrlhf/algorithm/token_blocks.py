"""How many logits a fused head holds at once. Standard library only, because the forecast of memory asks too."""

# Over all tokens: 67 MB in fp32. Each block of words updates the whole gradient of the hidden states, so blocks are
# larger on a GPU.
LOGITS_AT_ONCE, LOGITS_AT_ONCE_ON_GPU = 2**24, 2**26
