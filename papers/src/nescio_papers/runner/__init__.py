"""How a study is declared, run, kept and shown beside a paper's numbers."""
