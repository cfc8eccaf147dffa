"""What things cost as there is more of something: a curve each."""
