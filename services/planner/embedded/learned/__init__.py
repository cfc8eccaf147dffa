"""What was learned from labelled requests: which tasks words call for, and which of them feeds which.

The data goes one way: `words` (tokens and their n-grams) → `evidence` (linear scores of every intent, and where in the
words they come from) → `stages` (what is worth trying) → `parsing` (beam search over graphs, by what `moves` tells of
going on or ending) → `reading` (the graph of greatest expected worth, and how sure it is). `weights` is the data that
`make train` makes; numpy is all that is needed to read it.
"""
