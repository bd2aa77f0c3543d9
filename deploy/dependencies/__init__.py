"""Third-party components of Tidegauge: the parsed lock, licences, a bill of materials."""
