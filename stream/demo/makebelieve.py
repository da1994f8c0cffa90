"""Orders made up: the same ones for the same seed. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from decimal import Decimal
from random import Random
from typing import Literal

from stream.demo.orders import Line, Order

Life = Literal["placed", "paid", "shipped", "cancelled", "returned"]

# Code, description, price in pounds. Some prices do not fall on a penny, some goods are gifts.
GOODS = [
    ("22423", "Cake stand, three tiers", "12.75"),
    ("85123A", "Hanging heart, white", "2.55"),
    ("47566", "Bunting, party", "4.95"),
    ("85099B", "Jumbo bag, red spots", "1.95"),
    ("84879", "Bird ornament, assorted colours", "1.69"),
    ("22720", "Cake tins, set of three", "4.95"),
    ("20725", "Lunch bag, red spots", "1.65"),
    ("21212", "Cake cases, 72", "0.55"),
    ("22197", "Popcorn holder, small", "0.335"),
    ("23084", "Rabbit night light", "2.08"),
    ("22383", "Lunch bag, suki design", "1.65"),
    ("22457", "Natural slate heart chalkboard", "2.95"),
    ("21034", "Rex cash and carry jumbo shopper", "0.95"),
    ("22086", "Paper chain kit, 1950s", "2.95"),
    ("22960", "Jam making set with jars", "4.25"),
    ("79321", "Chilli lights", "5.75"),
    ("85099C", "Jumbo bag, baroque, black and white", "1.95"),
    ("22139", "Retrospot tea set, ceramic, 11 pieces", "4.95"),
    ("21931", "Jumbo storage bag, suki", "2.08"),
    ("22138", "Baking set, 9 pieces, retrospot", "4.95"),
    ("84997D", "Cutlery set, children's, pink polka dot", "4.15"),
    ("22112", "Chocolate hot water bottle", "4.95"),
    ("23203", "Jumbo bag, vintage doily", "2.08"),
    ("21080", "Paper napkins, red spots, 20", "0.85"),
    ("22993", "Pantry magnetic shopping list, set of four", "1.25"),
    ("GIFT", "Wrapping, a gift", "0"),
]
POSTAGE = ("POST", "Postage", "3.95")

# Currency, its share of a hundred orders, its price of a pound.
CURRENCIES = [("GBP", 80, "1"), ("EUR", 10, "1.1734"), ("JPY", 6, "191.25"), ("KWD", 4, "0.4015")]
COUNTRIES = {"GBP": "United Kingdom", "EUR": "Germany", "JPY": "Japan", "KWD": "Kuwait"}


def orders(count: int, *, seed: int, first_id: int, at: datetime) -> Iterator[tuple[Order, Life]]:
    """`count` orders from `first_id` on, all of the time `at`, each with how far its life goes."""
    random = Random(seed)
    for n in range(count):
        currency, _, rate = random.choices(CURRENCIES, [share for _, share, _ in CURRENCIES])[0]
        goods = random.sample(GOODS, random.choices([1, 2, 3, 5, 8], [4, 4, 3, 2, 1])[0])
        if random.random() < 0.4:
            goods.append(POSTAGE)
        lines = tuple(
            Line(sku, text, 1 if sku == "POST" else random.randint(1, 12), _price(price, rate))
            for sku, text, price in goods
        )
        customer = str(random.randint(12000, 12400)) if random.random() < 0.95 else None
        order = Order(str(first_id + n), "placed", customer, COUNTRIES[currency], currency, at, lines)
        yield order, _life(random)


def _price(pounds: str, rate: str) -> Decimal:
    return (Decimal(pounds) * Decimal(rate)).quantize(Decimal("0.0001"))


def _life(random: Random) -> Life:
    lives: list[Life] = ["placed", "paid", "shipped", "cancelled", "returned"]
    return random.choices(lives, [5, 10, 65, 12, 8])[0]
