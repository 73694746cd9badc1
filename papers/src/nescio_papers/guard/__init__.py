"""The study of the guard: what its witnesses say of known and foreign pictures, and every single score beside them."""
