"""The tables of the REGrad paper, and questions beyond it, one short declaration each.

Wang and Ji, "Epistemic uncertainty quantification for pre-trained models via gradients", 2024.
"""
