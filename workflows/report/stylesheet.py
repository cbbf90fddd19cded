"""The style of a page: light and dark by the reader's setting, from a phone's width to a desk's.

A constant. Each colour is named once a scheme; text has a contrast of at least 4.5 to 1 against what lies
behind it, and no meaning hangs on colour alone.
"""

STYLESHEET = """
:root{color-scheme:light dark;
--paper:#fcfcfa;--panel:#f3f4f1;--ink:#1c2024;--soft:#59616b;--line:#dcdfda;
--accent:#2c5fb3;--mask:#a66300;--random:#b3372f;--kept:#187a68;--quiet:#c9cdc8;
--good:#187a68;--contrast:#7a4bb0;
--mask-wash:#fdefd2;--random-wash:#fce3df;--kept-wash:#d8f0ea;--a-wash:#2c5fb3;--b-wash:#7a4bb0}
@media (prefers-color-scheme:dark){:root{
--paper:#15181b;--panel:#1e2226;--ink:#e6e8e6;--soft:#a0a8b0;--line:#343a40;
--accent:#79a6f2;--mask:#f0b453;--random:#f58c80;--kept:#5cc9b1;--quiet:#4a5158;
--good:#5cc9b1;--contrast:#c19bf0;
--mask-wash:#41310f;--random-wash:#4a221e;--kept-wash:#123d35;--a-wash:#79a6f2;--b-wash:#c19bf0}}
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%;scroll-behavior:smooth}
@media (prefers-reduced-motion:reduce){html{scroll-behavior:auto}}
body{margin:0;background:var(--paper);color:var(--ink);
font:16px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif}
main,footer{max-width:60rem;margin:0 auto;padding:0 1.25rem}
h1,h2,h3,p,figure,dl,dd,pre,ul{margin:0}
h1{font-size:clamp(1.6rem,5vw,2.25rem);line-height:1.2;letter-spacing:-.015em;overflow-wrap:anywhere}
h2{font-size:1.3rem;line-height:1.3;letter-spacing:-.01em}
h3{font-size:.9rem;font-weight:600;overflow-wrap:anywhere;display:flex;flex-wrap:wrap;gap:.3rem .6rem;
align-items:center}
header{padding:2.5rem 0 .5rem}
.kind{color:var(--accent);font-size:.85rem;font-weight:600;margin-bottom:.25rem}
.location{color:var(--soft);font:.85rem/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;
overflow-wrap:anywhere;margin-top:.25rem}
nav{display:flex;flex-wrap:wrap;gap:.35rem 1.1rem;margin-top:1.5rem;font-size:.9rem}
a{color:var(--accent);text-underline-offset:.2em}
a:focus-visible,summary:focus-visible,[tabindex]:focus-visible{outline:2px solid var(--accent);
outline-offset:2px}
section{padding:1.75rem 0 2rem;border-top:1px solid var(--line);margin-top:2rem}
section+section{margin-top:0}
.lead{color:var(--soft);max-width:44rem;margin-top:.35rem}
section>figure,section>.block,section>.scroll,section>.figures,section>.note{margin-top:1.5rem}
.note{color:var(--soft);font-size:.875rem;max-width:44rem;overflow-wrap:anywhere}
.figures{display:grid;grid-template-columns:repeat(auto-fit,minmax(8.6rem,1fr));gap:1.25rem 1.5rem}
header .figures{margin-top:1.75rem;grid-template-columns:repeat(auto-fit,minmax(7.9rem,1fr));column-gap:1rem}
.figures div{border-left:3px solid var(--line);padding-left:.75rem}
dt{color:var(--soft);font-size:.875rem}
.value{font-size:1.5rem;font-weight:600;line-height:1.25;font-variant-numeric:tabular-nums;
letter-spacing:-.01em}
.detail{color:var(--soft);font-size:.8125rem;font-variant-numeric:tabular-nums}
figcaption,caption{font-weight:600;font-size:.95rem;text-align:left;color:var(--ink)}
caption{padding-bottom:.35rem}
figcaption+*{margin-top:.35rem}
.scroll{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-size:.9rem;font-variant-numeric:tabular-nums}
th,td{padding:.4rem 0 .4rem 1rem;border-bottom:1px solid var(--line);text-align:left;vertical-align:top}
th:first-child{padding-left:0}
thead th{color:var(--soft);font-weight:500;font-size:.8125rem;vertical-align:bottom}
tbody th{font-weight:400}
.numeric td,.numeric th:not(:first-child){text-align:right;white-space:nowrap}
.words td{overflow-wrap:anywhere}
.words th{color:var(--soft);white-space:nowrap;width:1%;padding-right:1rem}
.words thead{position:absolute;clip-path:inset(50%);width:1px;height:1px;overflow:hidden}
.bars tbody th{width:100%;min-width:8rem;overflow-wrap:anywhere}
.beside{display:flex;gap:.75rem;align-items:center;min-height:1.55em}
.beside code{flex:0 1 6.5rem;min-width:3.5rem}
.beside svg{flex:1 1 2rem;min-width:1.5rem;margin:0}
.columns-2{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,20rem),1fr));gap:1.5rem 2.5rem}
.columns-2>figure{min-width:0}
.block>.note{margin-top:.6rem}
code,pre{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;font-size:.875em}
pre{background:var(--panel);padding:.9rem 1rem;border-radius:6px;overflow-x:auto;line-height:1.5}
figure>pre+.note{margin-top:.5rem}
svg{display:block;width:100%;overflow:visible}
.bar{margin:.3rem 0 .15rem}
.track{fill:var(--panel)}
.column{fill:var(--accent)}
.column:hover{opacity:.75}
.grid{stroke:var(--line)}
.axis{stroke:var(--soft)}
.tick{fill:var(--soft);font-size:12px;font-variant-numeric:tabular-nums}
.unit{color:var(--soft);font-size:.8125rem;text-align:right}
.expected{stroke:var(--ink);stroke-width:2}
.whisker{stroke:var(--ink);stroke-width:1.5}
.histogram>svg{margin-top:.75rem}
.curves{padding-left:3rem}
.curve{fill:none;stroke:var(--tone);stroke-width:1.75;stroke-linejoin:round;vector-effect:non-scaling-stroke}
.point{fill:var(--tone);stroke:var(--paper);stroke-width:1.5}
.reference{stroke:var(--soft);stroke-dasharray:4 4}
.tick.label{paint-order:stroke;stroke:var(--paper);stroke-width:4px;stroke-linejoin:round}
.swatch.dot{border-radius:50%}
.strip .fill{stroke:var(--paper)}
.strip{border-radius:4px;overflow:hidden}
.tone-accent{--tone:var(--accent)}.tone-mask{--tone:var(--mask)}.tone-random{--tone:var(--random)}
.tone-kept{--tone:var(--kept)}.tone-quiet{--tone:var(--quiet)}.tone-good{--tone:var(--good)}
.tone-contrast{--tone:var(--contrast)}
.fill{fill:var(--tone)}
.swatch{display:inline-block;width:.75em;height:.75em;border-radius:2px;background:var(--tone);
margin-right:.45em}
.legend{list-style:none;padding:0;display:flex;flex-wrap:wrap;gap:.35rem 1.4rem;font-size:.875rem;
color:var(--soft);margin-top:.6rem}
.legend b{color:var(--ink);font-weight:600;font-variant-numeric:tabular-nums}
details{margin-top:.4rem;font-size:.875rem}
summary{color:var(--accent);cursor:pointer;width:fit-content}
details caption{position:absolute;clip-path:inset(50%);width:1px;height:1px;overflow:hidden}
details .scroll{max-width:26rem}
.example{border:1px solid var(--line);border-radius:8px;padding:.9rem 1rem 1rem;margin-top:1rem}
.badge{font-size:.75rem;font-weight:600;color:var(--tone);border:1px solid currentColor;border-radius:99px;
padding:0 .55rem}
.line{display:flex;gap:.75rem;margin-top:.6rem;line-height:1.9}
.line p{flex:1;min-width:0;overflow-wrap:anywhere;border-left:3px solid var(--line);padding-left:.75rem}
.line-0 p{border-color:var(--a-wash)}
.line-1 p{border-color:var(--b-wash)}
.name{color:var(--soft);font-weight:600;font-size:.875rem;min-width:.9rem;text-align:right;line-height:2.15}
.line-0 .name{color:var(--a-wash)}
.line-1 .name{color:var(--b-wash)}
mark{color:var(--ink);border-radius:4px;padding:0 .35em;display:inline-block;max-width:100%;line-height:1.5;
border-bottom:2px solid}
mark small{font-size:.7em;color:var(--soft);margin-left:.4em}
.stood{font-weight:600}
.span-mask{background:var(--mask-wash);border-color:var(--mask)}
.span-random{background:var(--random-wash);border-color:var(--random)}
.span-kept{background:var(--kept-wash);border-color:var(--kept)}
.span-unknown{color:var(--random);font-weight:600}
.span-note{color:var(--soft);font-style:italic}
footer{color:var(--soft);font-size:.8125rem;padding-bottom:2.5rem;border-top:1px solid var(--line);
padding-top:1rem}
@media (max-width:30rem){main,footer{padding:0 1rem}header{padding-top:1.5rem}
.figures{grid-template-columns:1fr 1fr;gap:1rem}th,td{padding-left:.6rem}table{font-size:.8125rem}
.numeric td,.numeric th:not(:first-child){white-space:normal}
.bars tbody th{min-width:6.5rem}.words,.words tbody,.words tr,.words th,.words td{display:block;width:auto}
.example{padding:.75rem .75rem .9rem}.line{gap:.5rem}.line p{padding-left:.6rem}
.words th{border:0;padding-bottom:0}.words td{padding:0 0 .4rem}}
@media print{nav,details{display:none}section{break-inside:auto}.example,figure{break-inside:avoid}}
"""
