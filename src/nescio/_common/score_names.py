"""Names of scores beside probabilities, where the name alone would mislead."""

from __future__ import annotations

GLOSSES = {"max_probability": "one minus the largest probability"}


def glossed(score: str, *more: str) -> str:
    """Write the name of a score, with what it means in brackets where that is the reverse of what the name says.

    Args:
        score: The name.
        more: What else stands in the brackets.

    Returns:
        The text.

    Examples:
        >>> glossed("max_probability"), glossed("entropy"), glossed("entropy", "proven")
        ('max_probability (one minus the largest probability)', 'entropy', 'entropy (proven)')
    """
    notes = [GLOSSES[score], *more] if score in GLOSSES else list(more)
    return f"{score} ({'; '.join(notes)})" if notes else score
