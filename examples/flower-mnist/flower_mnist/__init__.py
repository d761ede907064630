"""The paper's linear model on the bundled digits, as a Flower app."""
