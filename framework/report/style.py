"""The look of the report: light and dark, from a phone's width up. No torch."""

NUM_COLORS = 8

STYLE = """
:root{color-scheme:light dark;--bg:#fff;--card:#f5f6f8;--fg:#1b1f24;--dim:#57606a;--line:#d0d7de;--accent:#0a5cc2;
--bad:#c5221f;--good:#1a7f37;--warn:#9a6700;--ghost:#b8c0ca;
--c0:#2f6fbf;--c1:#d9822b;--c2:#2c9a7a;--c3:#b2559b;--c4:#8a7a1f;--c5:#5b6ee1;--c6:#c2503f;--c7:#6b7785}
@media (prefers-color-scheme:dark){:root{--bg:#14171b;--card:#1e2329;--fg:#e6e9ed;--dim:#9aa4af;--line:#353c45;
--accent:#6cb0ff;--bad:#ff7b72;--good:#56d364;--warn:#e3b341;--ghost:#4a535e;
--c0:#6ea8ee;--c1:#f0a35a;--c2:#56c9a5;--c3:#d98bc6;--c4:#cbb84e;--c5:#9aa6ff;--c6:#f08575;--c7:#9aa5b1}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:66rem;padding:1rem;background:var(--bg);color:var(--fg);
font:1rem/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans",sans-serif;overflow-wrap:anywhere}
h1{font-size:1.5rem;margin:.25rem 0}h2{font-size:1.2rem;margin:2rem 0 .6rem;border-bottom:1px solid var(--line)}
h3{font-size:1rem;margin:1.2rem 0 .4rem}p{margin:.4rem 0}
a{color:var(--accent)}a:focus-visible,summary:focus-visible,.scroll:focus-visible,video:focus-visible{
outline:3px solid var(--accent);outline-offset:2px}
.skip{position:absolute;left:-99rem}.skip:focus{left:1rem;top:1rem;background:var(--bg);padding:.5rem}
nav{display:flex;flex-wrap:wrap;gap:.2rem 1rem;margin:.6rem 0;font-size:.95rem}nav a{padding:.25rem 0}
.dim{color:var(--dim)}.small{font-size:.875rem}.status{font-weight:600}
.done{color:var(--good)}.failed,.refused{color:var(--bad)}.interrupted{color:var(--warn)}
.prompt{white-space:pre-wrap}
.answers{display:grid;gap:.7rem;grid-template-columns:repeat(auto-fit,minmax(min(100%,19rem),1fr))}
.answers>div{background:var(--card);border-radius:.5rem;padding:.7rem .9rem}.answers h3{margin:0 0 .2rem}
.media{display:grid;gap:.8rem;grid-template-columns:repeat(auto-fill,minmax(min(100%,16rem),1fr))}
figure{margin:0}figure img,figure video{width:100%;height:auto;border-radius:.4rem;background:var(--card)}
figure.pixel img,figure.pixel video{image-rendering:pixelated}
figcaption{font-size:.875rem;color:var(--dim)}
.bars{display:grid;grid-template-columns:minmax(5rem,max-content) 1fr max-content;gap:.35rem .7rem;align-items:center}
.bars .bar{height:.95rem;border-radius:.2rem;background:var(--c0);min-width:1px}
.bars .ghost{background:none;border:2px dashed var(--dim)}.bars .track{display:grid;gap:2px}
.bars .value{font-variant-numeric:tabular-nums;text-align:right}
.chart{position:relative;height:14rem;border:1px solid var(--line);border-radius:.3rem;background:var(--card)}
.chart svg{position:absolute;inset:0;width:100%;height:100%}
.chart .y{position:absolute;right:.4rem;font-size:.8rem;background:var(--card);padding:0 .2rem;color:var(--dim)}
.axis{display:flex;justify-content:space-between;font-size:.8rem;color:var(--dim)}
.legend{display:flex;flex-wrap:wrap;gap:.2rem 1rem;list-style:none;padding:0;margin:.5rem 0;font-size:.9rem}
.legend i{display:inline-block;width:.8rem;height:.8rem;border-radius:.15rem;margin-right:.35rem}
.lanes{display:grid;grid-template-columns:max-content 1fr;gap:.25rem .6rem;align-items:center;font-size:.9rem}
.lanes svg{width:100%;height:1.7rem;background:var(--card);border-radius:.2rem;display:block}
.scroll{overflow-x:auto;max-width:100%}
table{border-collapse:collapse;width:100%;font-size:.9rem}caption{text-align:left;color:var(--dim);padding:.3rem 0}
th,td{text-align:left;vertical-align:top;padding:.3rem .6rem .3rem 0;border-bottom:1px solid var(--line);min-width:4rem}
details{margin:.5rem 0}summary{cursor:pointer;padding:.3rem 0}
pre{background:var(--card);padding:.7rem;border-radius:.4rem;white-space:pre-wrap;font-size:.85rem;margin:.4rem 0}
code,pre{font-family:ui-monospace,SFMono-Regular,Consolas,"Liberation Mono",monospace}
ul.notes{padding-left:1.2rem}.error{border-left:.3rem solid var(--bad);padding:.2rem .8rem;background:var(--card)}
@media (max-width:34rem){.bars{grid-template-columns:5rem 1fr max-content;font-size:.875rem}
.lanes{grid-template-columns:1fr;gap:.1rem}}
@media print{.skip,nav{display:none}body{max-width:none}}
"""


def color(number: int) -> str:
    """Return the CSS colour of series `number`; the last one stands for all beyond."""
    return f"var(--c{min(number, NUM_COLORS - 1)})"
