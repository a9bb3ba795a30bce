"""The outbox: what changed, told to subscribed destinations by deliveries that outlive every failure."""
