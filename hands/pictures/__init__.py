"""Pictures that leave a hand, made fit for the model before they are blobs."""
