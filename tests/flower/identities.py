"""Keys of hospitals, in files as their nodes have them."""

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey


def write_identity(folder, name):
    """The file of a new private key, and its public key in hexadecimal."""
    key = Ed25519PrivateKey.generate()
    path = folder / f"{name}.pem"
    pem, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    path.touch(0o600)
    path.write_bytes(key.private_bytes(pem, form, serialization.NoEncryption()))
    return path, key.public_key().public_bytes_raw().hex()
