"""The experiments of the papers, reproduced: data, settings, published figures beside ours."""
