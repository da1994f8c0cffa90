"""Money in minor units (pence, cents): rounded once a line, summed as whole numbers."""

from decimal import ROUND_HALF_UP, Decimal

# ISO 4217: how many decimals the minor unit has, where it is not two.
EXCEPTIONS = {
    **dict.fromkeys("BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX UYI VND VUV XAF XOF XPF".split(), 0),
    **dict.fromkeys("BHD IQD JOD KWD LYD OMR TND".split(), 3),
    **dict.fromkeys("CLF UYW".split(), 4),
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
