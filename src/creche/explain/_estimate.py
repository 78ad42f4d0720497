"""What a text costs, roughly."""

BYTES_A_TOKEN = 4


def estimate_tokens(text: str) -> int:
    """Return about how many tokens a text is: a quarter of its bytes in UTF-8, rounded up.

    Every model counts in its own way, and no tokenizer is asked: of English and of code it is off by some tenths at
    most, of other languages by more. What a model provider adds around messages and tools is not in it.
    """
    return -(-len(text.encode(errors="replace")) // BYTES_A_TOKEN)
