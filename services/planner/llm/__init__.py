"""Planner that uses an LLM.

The text of the LLM becomes valid tasks in two incremental steps:

    reader = PlanReader()                                 # text -> task objects, each when its brace closes
    repairer = PlanRepairer(catalogue, inputs, plan, limit)   # task objects -> valid tasks
    for delta in reply:
        for raw in reader.feed(delta):
            for task in repairer.add(raw): emit(task)     # valid together with all tasks emitted before
    for task in repairer.close(cut=reply.is_truncated or reader.is_incomplete): emit(task)

`reader.notes` are the LLM's notes, `reader.dropped` describes text that was ignored. `repairer.faults` are the
faults that could not be repaired, numbered as the LLM numbered its tasks; their texts are sent back in one repair call.
The answer to it is read by a new PlanReader into the same PlanRepairer, which is closed again: a task with the id of an
invalid one replaces it, tasks that waited for it are emitted, and emitted tasks stay. `plan_format` documents the
format that the prompt requests.
"""
