import signal

# A shell in the background hands its children an ignored Ctrl-C; the tests that press it need it to mean something.
signal.signal(signal.SIGINT, signal.default_int_handler)
