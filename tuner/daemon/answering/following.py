"""What follows from a question, in sentences for who asked."""

from tuner.daemon.answering.replies import Kept
from tuner.daemon.desk import Question
from tuner.daemon.settings.tables import OnlineTable


def coming(kept: Kept, question: Question, online: OnlineTable, *, resting: bool) -> tuple[str, ...]:
    """What follows from a question whose answer no job makes better yet, in sentences.

    Args:
        kept: the reply.
        question: that was asked.
        online: what may follow.
        resting: its search is not wanted for a while.
    """
    sentences = []
    if kept.unknown:
        names = ", ".join(kept.unknown)
        sentences.append(f"the analytical answer of {names} is not there yet: it is worked out in its turn")
    switch = "retune_stale" if kept.reply.origin == "stored" else "refine"
    if not getattr(online, switch):
        why = f"[online] {switch} is off"
    elif resting:
        why = "one was tried, or cancelled, of late"
    elif question.demand:
        return (*sentences, "a search is queued for it where there is a place: ask again for its number")
    else:
        return tuple(sentences)
    return (*sentences, f"no search is queued for it, as {why}; submit one")
