"""Shared test fixtures, fakes and programs; each module is named for what it provides."""
