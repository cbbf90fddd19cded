"""BERT for pretraining: configuration, modules, initialisation, and exchange with Hugging Face's weights."""
