"""Code that the controller and the actors share: the message that carries a plan, and settings from the flags."""
