"""Padding as flash-attn's module of this name takes it off and puts it back; transformers has the same in torch."""

from einops import rearrange
from transformers.modeling_flash_attention_utils import _pad_input as pad_input
from transformers.modeling_flash_attention_utils import _unpad_input as unpad_input

__all__ = ["index_first_axis", "pad_input", "rearrange", "unpad_input"]


def index_first_axis(rows, indices):
    return rows[indices]
