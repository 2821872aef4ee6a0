// SPDX-License-Identifier: Apache-2.0
//
// The colours of a report and the classes of its pictures (svg.h), as CSS: for the page, and for a
// picture that is a file of its own.
//
// Threading: constants.
#pragma once

#include <string_view>

namespace kvr::report {

// Series colours keep their contrast on both grounds and stay apart for the colour-blind (Okabe and
// Ito's, darkened or lightened a little).
inline constexpr std::string_view kPalette = R"css(
:root { color-scheme: light dark; --ground: #fff; --ink: #1a1c20; --soft: #5d6470; --rule: #e3e6ea;
  --band: #dfe5ee; --win: #08704a; --loss: #b3401a; --same: #5d6470;
  --s0: #0067a5; --s1: #b85c00; --s2: #0b7a5b; --s3: #a0467b; --s4: #7a6a00; --s5: #45505e; }
@media (prefers-color-scheme: dark) { :root { --ground: #14171b; --ink: #e7e9ec; --soft: #9aa3af;
  --rule: #2b3037; --band: #2a3240; --win: #3fc795; --loss: #ff8a5c; --same: #9aa3af;
  --s0: #5ab4f0; --s1: #f0a04b; --s2: #3fc795; --s3: #e08cbd; --s4: #d8c64a; --s5: #a9b4c2; } }
)css";

inline constexpr std::string_view kPictureStyle =
    R"css(svg text { fill: var(--soft); font: 12px system-ui, sans-serif; }
svg .l { fill: var(--ink); } svg .mid { text-anchor: middle; } svg .end { text-anchor: end; }
svg .grid { stroke: var(--rule); } svg .zero { stroke: var(--soft); }
svg .session { stroke: var(--rule); stroke-dasharray: 2 3; }
svg .band { fill: var(--band); } svg .whisker { stroke-width: 2.5; stroke-linecap: round; }
svg .whisker.win { stroke: var(--win); } svg .whisker.loss { stroke: var(--loss); }
svg .whisker.same { stroke: var(--same); } svg .median { fill: var(--s0); fill-opacity: .7; }
svg .dot.win { fill: var(--win); } svg .dot.loss { fill: var(--loss); }
svg .dot.same { fill: var(--same); } svg .beyond { fill: var(--band); }
svg .line { fill: none; stroke-width: 2; }
svg .dots { fill: none; stroke-width: 3; stroke-linecap: round; stroke-opacity: .6; }
svg .floor { fill: none; stroke: var(--soft); stroke-width: 1.5; stroke-dasharray: 5 4; }
svg .f0 { fill: var(--s0); } svg .f1 { fill: var(--s1); } svg .f2 { fill: var(--s2); }
svg .f3 { fill: var(--s3); } svg .f4 { fill: var(--s4); } svg .f5 { fill: var(--s5); }
svg .c0 { stroke: var(--s0); } svg .c1 { stroke: var(--s1); } svg .c2 { stroke: var(--s2); }
svg .c3 { stroke: var(--s3); } svg .c4 { stroke: var(--s4); } svg .c5 { stroke: var(--s5); }
)css";

}  // namespace kvr::report
