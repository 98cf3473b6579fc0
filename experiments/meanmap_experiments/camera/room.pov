// A rectangular room in the manner of the Cornell box: walls of different colours, a ceiling light
// and two pieces of furniture (a wardrobe and a table). The camera stays in one place and turns.
//
// POV-Ray's coordinates are left-handed: x to the right, y up, z ahead; lengths are in metres.
// Who includes this file declares:
//   Right, Up, Ahead   the axes of the camera, orthonormal
//   Field              the horizontal field of view, in degrees (the picture is square)
//   Gather             1 to look all around and save the radiosity; 0 to read it and take a picture

#version 3.7;

#declare Width = 6.0;    // x from 0
#declare Height = 3.0;   // y from 0
#declare Depth = 5.0;    // z from 0
#declare Eye = <2.6, 1.5, 2.2>;

global_settings {
  assumed_gamma 1.0
  // Light from wall to wall. It does not depend on where the camera looks: gathered once over all
  // directions, it is the same in every frame, and neighbouring frames do not flicker.
  radiosity {
    #if (Gather)
      pretrace_start 0.08 pretrace_end 0.01 error_bound 0.5
    #else
      // Wider than gathered, so that hardly any frame has to add samples of its own.
      pretrace_start 1 pretrace_end 1 error_bound 1
    #end
    count 300
    nearest_count 5
    recursion_limit 2
    low_error_factor 0.7
    minimum_reuse 0.01
    brightness 1.0
    always_sample off
  }
}

#if (Gather)
  camera { spherical location Eye angle 360 180 }
#else
  camera {
    perspective
    location Eye
    right Right
    up Up
    direction Ahead * 0.5 / tan(radians(Field / 2))
  }
#end

#declare Matt = finish { ambient 0 emission 0 diffuse 0.8 }

#macro Paint(Colour)
  texture { pigment { color srgb Colour } finish { Matt } }
#end

// Stripes of a quarter of a metre, every other one a little darker.
#macro Paper(Colour, Across)
  texture {
    pigment {
      gradient Across
      color_map { [0.5 color srgb Colour] [0.5 color srgb 0.85 * Colour] }
      scale 0.5
    }
    finish { Matt }
  }
#end

// --- the room ------------------------------------------------------------------------------------

plane { x, 0 Paper(<0.76, 0.32, 0.30>, z) }          // left: red
plane { -x, -Width Paper(<0.32, 0.66, 0.36>, z) }    // right: green
plane { -z, -Depth Paper(<0.36, 0.46, 0.76>, x) }    // ahead: blue
plane { z, 0 Paper(<0.80, 0.70, 0.40>, x) }          // behind: yellow
plane { -y, -Height Paint(<0.82, 0.82, 0.80>) }      // ceiling: white

plane {                                              // floor: brown tiles
  y, 0
  texture {
    pigment { checker color srgb <0.70, 0.64, 0.55>, color srgb <0.28, 0.20, 0.16> scale 0.6 }
    finish { Matt }
  }
}

// --- the ceiling light ---------------------------------------------------------------------------

#declare Lamp = <3.6, Height - 0.08, 3.0>;

light_source {
  Lamp - 0.02 * y
  color rgb <1.0, 0.95, 0.85> * 1.3
  area_light 0.8 * x, 0.8 * z, 4, 4
  adaptive 1
  fade_distance 3
  fade_power 2
}

box {
  Lamp - <0.45, 0, 0.45>, Lamp + <0.45, 0.08, 0.45>
  pigment { color rgb 1 }
  finish { ambient 0 emission 1.5 diffuse 0 }
  no_shadow
}

// --- furniture -----------------------------------------------------------------------------------

// A wardrobe against the wall ahead, near the left corner; its doors are of two colours.
union {
  box { <0.0, 0.0, 0.0>, <1.5, 2.1, 0.6> Paint(<0.75, 0.72, 0.68>) }
  box { <0.04, 0.12, -0.03>, <0.74, 2.05, 0.0> Paint(<0.90, 0.88, 0.85>) }
  box { <0.76, 0.12, -0.03>, <1.46, 2.05, 0.0> Paint(<0.30, 0.16, 0.10>) }
  translate <0.5, 0, Depth - 0.6>
}

// A table with a dark top, turned a little, near the right corner behind.
union {
  box { <-0.8, 0.72, -0.45>, <0.8, 0.78, 0.45> Paint(<0.10, 0.12, 0.30>) }
  #for (I, -1, 1, 2)
    #for (J, -1, 1, 2)
      box { <0.7 * I - 0.05, 0, 0.35 * J - 0.05>, <0.7 * I + 0.05, 0.72, 0.35 * J + 0.05>
            Paint(<0.85, 0.80, 0.70>) }
    #end
  #end
  rotate 25 * y
  translate <4.7, 0, 1.0>
}
