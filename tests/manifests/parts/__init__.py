"""Of what the sound house is made."""
