"""Places an order as an application does: its own row and the event in one transaction.

python place_order.py 1001
"""

import os
import sys
from decimal import Decimal

import psycopg

from stream import Outbox

outbox = Outbox(".")  # this project's schemas; one for the whole process

if len(sys.argv) != 2 or "DATABASE_URL" not in os.environ:
    sys.exit('usage: python place_order.py ORDER_ID, after: eval "$(stream stack env)"')
order_id = sys.argv[1]
lines = [{"sku": "cup", "quantity": 2, "price": Decimal("4.50")}]

with psycopg.connect(os.environ["DATABASE_URL"]) as conn:  # commits at its end, or rolls all of it back
    conn.execute("create table if not exists customer_order (id text primary key, customer text not null)")
    conn.execute("insert into customer_order (id, customer) values (%s, %s)", [order_id, "17850"])
    outbox.append(conn, "OrderPlaced", key=order_id, data={"customer": "17850", "lines": lines})
