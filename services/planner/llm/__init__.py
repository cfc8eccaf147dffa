"""The planner that asks a language model.

What the model writes becomes valid tasks in two steps, both incremental:

    reader = Reader()                                   # reading: text as it comes -> objects as they close
    drafting = Drafting(catalogue, inputs, prior, limit)  # repair: objects -> tasks that can be run
    for delta in reply:
        for raw in reader.feed(delta):
            for task in drafting.add(raw): emit(task)   # final: valid against all that was emitted before it
    for task in drafting.close(cut=reply_was_cut or reader.unfinished): emit(task)

`reader.notes` are the model's remarks, `reader.dropped` sentences on text that was left out. `drafting.complaints` are
the faults that could not be mended, in the model's own numbering: `str(fault)` goes back to the model as it is. For
that one repair call a fresh Reader feeds the same Drafting, which is closed again: a task given again under the id of a
faulty one takes its place, what waited for it is released, and what is out stays. `wire` documents the format that the
prompt teaches.
"""
