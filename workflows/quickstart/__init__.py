"""The whole way on text that every Python carries, without a network or a file of the user's."""
