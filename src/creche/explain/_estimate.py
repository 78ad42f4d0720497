"""What a text costs, roughly."""

BYTES_A_TOKEN = 4


def estimate_tokens(text: str) -> int:
    """Return about how many tokens a text is: a quarter of its bytes in UTF-8, rounded up.

    Every model counts in its own way, and no tokenizer is asked. English prose and code come out near the truth or
    somewhat high; what a provider adds around messages and tools is not in it.
    """
    return -(-len(text.encode(errors="replace")) // BYTES_A_TOKEN)
