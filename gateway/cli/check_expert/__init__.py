"""What an expert promises the house, tried one by one: `hugginggpt check-expert`."""
