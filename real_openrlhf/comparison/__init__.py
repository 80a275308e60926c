"""Many runs in one Ray with one engine, then the report."""
