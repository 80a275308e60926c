"""The policy's forward pass: attention without flash-attn, a head without logits, adapters."""
