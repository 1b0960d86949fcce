"""The Python client of the gateway: live tables in a notebook or a program.

    async with Gateway("http://localhost:8080") as gateway:
        table = await gateway.get_table("shop", "orders", "final_ui")
        table.on_swap(lambda swap: print("now from generation", swap.generation))
        print(table.rows.to_pandas())

Needs aiohttp and pyarrow: `pip install 'topicbinding[client]'` from the repository.
"""

from topicbinding.client.gateway import Gateway, GatewayError
from topicbinding.client.live import LiveTable
from topicbinding.client.replica import Replica, State, Swap, Update

__all__ = ["Gateway", "GatewayError", "LiveTable", "Replica", "State", "Swap", "Update"]
