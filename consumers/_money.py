"""Money in minor units (pence, cents): rounded once a line, summed as whole numbers."""

from decimal import ROUND_HALF_UP, Decimal

# ISO 4217: how many decimals the minor unit has, where it is not two.
EXCEPTIONS = {
    **{"BIF": 0, "CLP": 0, "DJF": 0, "GNF": 0, "ISK": 0, "JPY": 0, "KMF": 0, "KRW": 0, "PYG": 0},
    **{"RWF": 0, "UGX": 0, "UYI": 0, "VND": 0, "VUV": 0, "XAF": 0, "XOF": 0, "XPF": 0},
    **{"BHD": 3, "IQD": 3, "JOD": 3, "KWD": 3, "LYD": 3, "OMR": 3, "TND": 3},
    **{"CLF": 4, "UYW": 4},
}


def decimals(currency: str) -> int:
    """Decimals of the currency's minor unit."""
    return EXCEPTIONS.get(currency, 2)


def line_total(quantity: int, price: Decimal, currency: str) -> int:
    """`quantity` x `price` in minor units, half rounded up.

    Exact before it is rounded: 10 digits of quantity and 18 of price are the 28 that a Decimal keeps.
    """
    return int((quantity * price).scaleb(decimals(currency)).to_integral_value(ROUND_HALF_UP))


def amount(minor: int, currency: str) -> str:
    """Minor units as people read them: 123456 GBP is `1,234.56`."""
    return f"{Decimal(minor).scaleb(-decimals(currency)):,f}"
