"""The learned graph: which tasks the words of a request call for, and which task feeds which.

Data flows through the modules in this order: `features` (tokens and their n-grams), `evidence` (linear scores of every
intent, and the words that they come from), `candidates` (the intents to try), `beam_search` (graphs of them, scored by
`move_features`), `reading` (the graph of greatest expected value, and its probability). `weights` is the data that
`make train` makes; only numpy is needed to read it.
"""
