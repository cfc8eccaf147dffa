"""What tests share: fixtures, fakes and programs. Each module is named for what it provides."""
