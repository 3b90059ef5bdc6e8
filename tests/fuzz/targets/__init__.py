"""The targets, a module for each package or two; those of `database` have the test database and may leave no rows."""
