"""The maths verifier: from a response and its gold answer to right, wrong, no answer or no verdict."""
