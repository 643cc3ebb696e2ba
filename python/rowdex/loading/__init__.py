"""What a :class:`rowdex.Loader` is made of."""
