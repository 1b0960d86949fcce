"""Who may ask a driver or a bridge: the gateway, by its ServiceAccount token, checked offline."""

from topicbinding.auth.tokens import NotAuthorized, TokenVerifier, bearer, cluster_keys

__all__ = ["NotAuthorized", "TokenVerifier", "bearer", "cluster_keys"]
