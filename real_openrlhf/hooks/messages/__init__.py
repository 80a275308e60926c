"""What the controller and the actors share: plans on their way, and what both read from the flags."""
