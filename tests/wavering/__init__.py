"""An expert that can be made to answer otherwise without a word of it: started by `python -m tests.wavering`."""
