// The things that scenes of the depth experiment are made of, and the survey of their depth.
//
// POV-Ray's coordinates are left-handed: x to the right, y up, z ahead; lengths are in metres. The
// camera stands at (0, Eye_Height, 0). Who includes this file declares
//   Eye_Height, Yaw, Pitch    the camera; degrees, to the right of z and up from the horizon
//   Field                     the vertical field of view, in degrees
//   Rows, Columns             patches of the picture
//   Ambient                   the light from everywhere, a colour
// calls a macro for each light and thing, and at last Survey(File, Range).

#version 3.7;

global_settings { assumed_gamma 1.0 max_trace_level 4 ambient_light rgb Ambient }

#default { finish { ambient 0.3 diffuse 0.75 } }

#declare Eye = <0, Eye_Height, 0>;
#macro Turned(Vector) vrotate(Vector, <-Pitch, Yaw, 0>) #end
#declare Half_Up = tan(radians(Field / 2));
#declare Half_Right = Half_Up * Columns / Rows;

camera {
  perspective
  location Eye
  right 2 * Half_Right * Turned(x)
  up 2 * Half_Up * Turned(y)
  direction Turned(z)
}

// Every thing is drawn, and kept for the survey.
#declare Things = array[1000];
#declare Count = 0;

#macro Put(Thing)
  object { Thing }
  #declare Things[Count] = object { Thing }
  #declare Count = Count + 1;
#end

// --- pigments, to stand between braces -----------------------------------------------------------

// One colour with light and dark spots of a size, as plaster, earth, asphalt or carpet have.
#macro Spotted(Colour, Contrast, Size)
  wrinkles
  color_map {
    [0.15 srgb Colour * (1 - Contrast)]
    [0.45 srgb Colour]
    [0.80 srgb Colour * (1 + 0.6 * Contrast)]
  }
  scale 3 * Size
#end

// Two colours in patches, each spotted: grass, leaves, moss.
#macro Mottled(Colour, Other, Size)
  bozo
  turbulence 0.6
  pigment_map { [0.35 Spotted(Colour, 0.45, Size / 8)] [0.65 Spotted(Other, 0.45, Size / 8)] }
  scale Size
#end

#macro Bricks(Colour, Mortar, Size)
  brick
  pigment { color srgb Mortar }
  pigment { Spotted(Colour, 0.35, 0.3) }
  brick_size <3, 1, 1.5> * Size
  mortar 0.13 * Size
#end

// Slabs: square ones with joints if Width is 1, planks if it is much less.
#macro Slabs(Colour, Joint, Size, Width)
  brick
  pigment { color srgb Joint }
  pigment { Spotted(Colour, 0.22, 0.15) }
  brick_size <Size * Width, 1000, Size>
  mortar 0.02 * Size * Width
  translate 500 * y
#end

// Boards one above the other.
#macro Boards(Colour, Size)
  gradient y
  pigment_map {
    [0.00 color srgb Colour * 0.45]
    [0.10 color srgb Colour * 0.55]
    [0.10 Spotted(Colour, 0.2, 0.1)]
    [1.00 Spotted(Colour * 1.05, 0.2, 0.1)]
  }
  scale Size
#end

// --- textures by number: of walls, and of grounds -----------------------------------------------

#macro Wall_Pigment(Kind, Colour, Other, Size)
  #switch (Kind)
    #case (0) Spotted(Colour, 0.15, 0.5) #break
    #case (1) Bricks(Colour, Other, 0.08 * Size) #break
    #case (2) Boards(Colour, 0.22 * Size) #break
    #case (3) Bricks(Colour, Other, 0.45 * Size) #break
    #else Mottled(Colour, Other, Size)
  #end
#end

#macro Ground_Texture(Kind, Colour, Other, Size, Shift)
  texture {
    pigment {
      #switch (Kind)
        #case (0) Spotted(Colour, 0.3, 0.03 * Size) #break     // asphalt, gravel
        #case (1) Mottled(Colour, Other, 0.8 * Size) #break    // grass
        #case (2) Slabs(Colour, Other, 0.6 * Size, 1) #break   // paving
        #case (3) Mottled(Colour, Other, 2.5 * Size) #break    // earth
        #case (4) Slabs(Colour, Other, 1.6 * Size, 0.12) #break // planks
        #else                                                   // tiles
          checker
          pigment { Spotted(Colour, 0.12, 0.1) }
          pigment { Spotted(Other, 0.12, 0.1) }
          scale 0.5 * Size
          translate 0.5 * y
      #end
    }
    rotate Shift * 60 * y
    translate <Shift, 0, 2 * Shift>
  }
#end

// --- sky, light, haze ---------------------------------------------------------------------------

#macro Sky(Low, High, Cloud, Cover, Shift)
  sky_sphere {
    pigment { gradient y color_map { [0.0 srgb Low] [0.5 srgb High] } }
    #if (Cover > 0)
      pigment {
        bozo
        turbulence 0.65 octaves 6 omega 0.6
        color_map {
          [1 - Cover srgbt <Cloud.x, Cloud.y, Cloud.z, 1>]
          [min(1, 1.2 - Cover) srgbt <Cloud.x, Cloud.y, Cloud.z, 0.1>]
        }
        scale <0.7, 0.18, 0.7>
        translate Shift * <3, 1, 2>
      }
    #end
  }
#end

#macro Sun(Azimuth, Elevation, Colour)
  light_source {
    1000 * z, rgb Colour
    parallel point_at 0
    rotate -Elevation * x rotate Azimuth * y
  }
#end

#macro Lamp(Place, Colour)
  light_source { Place, rgb Colour fade_distance 6 fade_power 1.5 }
#end

// Light of the sky: from above, without shadows.
#macro Daylight(Colour)
  light_source { <300, 1000, -400>, rgb Colour shadowless }
#end

// Thinner with height, so that the sky above is seen.
#macro Haze(Colour, Distance)
  fog { fog_type 2 distance Distance srgb Colour fog_offset 6 fog_alt 8 }
#end

// --- things -------------------------------------------------------------------------------------

#declare Ground_Level = plane { y, 0 }

#macro Ground(Kind, Colour, Other, Size, Shift)
  object { Ground_Level Ground_Texture(Kind, Colour, Other, Size, Shift) }
#end

// A strip on the ground, along z before it is turned: road, path, pavement.
#macro Strip(Place, Width, Length, Height, Angle, Kind, Colour, Other, Size)
  #local Thing = box {
    <-Width / 2, -0.5, 0>, <Width / 2, Height, Length>
    Ground_Texture(Kind, Colour, Other, Size, 0.3)
    rotate Angle * y translate Place
  }
  Put(Thing)
#end

// A box on the ground with a wall's pigment; Place is the middle of its foot.
#macro Block(Place, Size, Angle, Kind, Colour, Other, Grain)
  #local Thing = box {
    <-Size.x / 2, 0, -Size.z / 2>, <Size.x / 2, Size.y, Size.z / 2>
    texture { pigment { Wall_Pigment(Kind, Colour, Other, Grain) } translate Size / 2 }
    rotate Angle * y translate Place
  }
  Put(Thing)
#end

// A building: windows in bays and storeys; a share of each is glass. Eaves, or a ridged roof.
#macro Building(
  Place, Size, Angle, Kind, Colour, Other, Grain, Bay, Storey, Share, Glass, Roof, Tile)
  #local Far = 100 * Bay;
  #local Across = 0.5 * Share;
  #local Top = Size.y - 0.5;
  // x + z runs along each of the four walls; negative within a pane.
  #local Pane = function(x, y, z) {
    max(abs(mod(x + z + Far, Bay) / Bay - 0.5) - Across,
        0.02 - abs(mod(x + z + Far, Bay) / Bay - 0.5),
        abs(mod(y, Storey) / Storey - 0.55) - 0.28,
        y - Top)
  }
  #local Thing = union {
    box {
      <-Size.x / 2, 0, -Size.z / 2>, <Size.x / 2, Size.y, Size.z / 2>
      texture {
        pigment {
          function { select(Pane(x, y, z), 0.75, 0.25) }
          pigment_map {
            [0.5 Wall_Pigment(Kind, Colour, Other, Grain)]
            [0.5 gradient y color_map { [0 srgb Glass * 1.5] [1 srgb Glass * 0.6] } scale Storey]
          }
        }
      }
    }
    #if (Roof > 0)
      #local Run = min(Size.x, Size.z) / 2 + 0.4;
      prism {
        linear_sweep linear_spline -1, 1, 4, <-Run, 0>, <Run, 0>, <0, Roof>, <-Run, 0>
        rotate -90 * x scale <1, 1, -1>
        #if (Size.x > Size.z) scale <1, 1, Size.x / 2 + 0.3> rotate 90 * y
        #else scale <1, 1, Size.z / 2 + 0.3> #end
        translate Size.y * y
        texture { pigment { Boards(Tile, 0.3) } }
      }
    #else
      box {
        <-Size.x / 2 - 0.25, Size.y, -Size.z / 2 - 0.25>
        <Size.x / 2 + 0.25, Size.y + 0.35, Size.z / 2 + 0.25>
        pigment { color srgb Tile }
      }
    #end
    rotate Angle * y translate Place
  }
  Put(Thing)
#end

// A trunk and a crown of spheres.
#macro Tree(Place, Height, Spread, Bark, Leaf, Other, Seed)
  #local Dice = seed(Seed);
  #local Bare = (0.28 + 0.15 * rand(Dice)) * Height;
  #local Rise = (Height - Bare) / 2;
  #local Thing = union {
    cone {
      0, 0.035 * Height, (Bare + Rise) * y, 0.015 * Height
      texture { pigment { Spotted(Bark, 0.5, 0.05) } }
    }
    union {
      #for (I, 1, 48)
        #local Angle = 360 * rand(Dice);
        #local Level = 2 * rand(Dice) - 1;
        #local Out = 0.85 * Spread * sqrt(max(0, 1 - Level * Level)) * sqrt(rand(Dice));
        sphere {
          vrotate(Out * x, Angle * y) + (Bare + Rise + 0.85 * Rise * Level) * y,
          (0.16 + 0.2 * rand(Dice)) * min(Spread, Rise)
        }
      #end
      texture { pigment { Mottled(Leaf, Other, 0.25) } normal { granite 0.8 scale 0.6 } }
    }
    translate Place
  }
  Put(Thing)
#end

// A fir: cones one above the other.
#macro Fir(Place, Height, Spread, Bark, Leaf, Other)
  #local Thing = union {
    cylinder {
      0, 0.3 * Height * y, 0.025 * Height
      texture { pigment { Spotted(Bark, 0.5, 0.05) } }
    }
    union {
      #for (I, 0, 4)
        cone {
          (0.14 + 0.15 * I) * Height * y, Spread * (1 - 0.17 * I)
          (0.42 + 0.145 * I) * Height * y, 0
        }
      #end
      texture { pigment { Mottled(Leaf, Other, 0.2) } normal { granite 0.8 scale 0.4 } }
    }
    translate Place
  }
  Put(Thing)
#end

#macro Bush(Place, Size, Leaf, Other, Seed)
  #local Dice = seed(Seed);
  #local Thing = union {
    #for (I, 1, 7)
      sphere {
        vrotate(0.6 * Size * rand(Dice) * x, 360 * rand(Dice) * y)
          + Size * (0.2 + 0.4 * rand(Dice)) * y,
        Size * (0.3 + 0.25 * rand(Dice))
      }
    #end
    texture { pigment { Mottled(Leaf, Other, 0.15) } normal { granite 0.8 scale 0.3 } }
    translate Place
  }
  Put(Thing)
#end

#macro Car(Place, Angle, Colour)
  #local Thing = union {
    box { <-0.85, 0.3, -2.1>, <0.85, 0.85, 2.1> pigment { color srgb Colour } }
    box { <-0.75, 0.85, -1.6>, <0.75, 1.2, 0.9> pigment { color srgb <0.12, 0.15, 0.18> } }
    box { <-0.75, 1.2, -1.5>, <0.75, 1.42, 0.7> pigment { color srgb Colour } }
    #for (I, -1, 1, 2)
      cylinder {
        <-0.88, 0.32, 1.35 * I>, <0.88, 0.32, 1.35 * I>, 0.32
        pigment { color srgb 0.06 }
      }
      box {
        <0.6 * I - 0.15, 0.6, -2.12>, <0.6 * I + 0.15, 0.75, -2.1>
        pigment { color srgb <0.6, 0.1, 0.08> }
      }
    #end
    rotate Angle * y translate Place
  }
  Put(Thing)
#end

// A post with something on top: a lamp's arm if Arm is above 0.
#macro Post(Place, Height, Radius, Arm, Colour)
  #local Thing = union {
    cylinder { 0, Height * y, Radius }
    #if (Arm > 0) box { <0, Height - 0.1, -0.1>, <Arm, Height + 0.05, 0.1> } #end
    pigment { color srgb Colour }
    translate Place
  }
  Put(Thing)
#end

// Pales and two rails, along x before it is turned.
#macro Fence(Place, Length, Height, Angle, Colour)
  #local Thing = union {
    #for (I, 0, floor(Length / 0.3))
      box { <0.3 * I, 0, -0.02>, <0.3 * I + 0.12, Height, 0.02> }
    #end
    box { <0, 0.25 * Height, 0.02>, <Length, 0.25 * Height + 0.08, 0.06> }
    box { <0, 0.75 * Height, 0.02>, <Length, 0.75 * Height + 0.08, 0.06> }
    texture { pigment { Spotted(Colour, 0.25, 0.1) } }
    translate -Length / 2 * x rotate Angle * y translate Place
  }
  Put(Thing)
#end

// A top on four legs.
#macro Table(Place, Size, Angle, Colour)
  #local Thing = union {
    box { <-Size.x / 2, Size.y - 0.05, -Size.z / 2>, <Size.x / 2, Size.y, Size.z / 2> }
    #for (I, -1, 1, 2)
      #for (J, -1, 1, 2)
        box {
          <-0.03, 0, -0.03>, <0.03, Size.y, 0.03>
          translate <I * (Size.x / 2 - 0.05), 0, J * (Size.z / 2 - 0.05)>
        }
      #end
    #end
    texture { pigment { Spotted(Colour, 0.25, 0.1) } }
    rotate Angle * y translate Place
  }
  Put(Thing)
#end

// A room: walls with a skirting, a ceiling with bright panels; the camera is in it.
#macro Room(Left, Right, Back, End, Height, Kind, Colour, Other, Grain, Ceiling, Panel)
  #local Walls = union {
    box { <Left - 0.2, 0, Back>, <Left, Height, End> }
    box { <Right, 0, Back>, <Right + 0.2, Height, End> }
    box { <Left, 0, Back - 0.2>, <Right, Height, Back> }
    box { <Left, 0, End>, <Right, Height, End + 0.2> }
    texture { pigment { Wall_Pigment(Kind, Colour, Other, Grain) } }
  }
  Put(Walls)
  #local Skirting = union {
    box { <Left, 0, Back>, <Left + 0.02, 0.12, End> }
    box { <Right - 0.02, 0, Back>, <Right, 0.12, End> }
    box { <Left, 0, End - 0.02>, <Right, 0.12, End> }
    pigment { color srgb Other * 0.6 }
  }
  Put(Skirting)
  #local Lit = function(x, z) {
    max(abs(mod(x + 100 * Panel, Panel) / Panel - 0.5) - 0.12,
        abs(mod(z + 100 * Panel, Panel) / Panel - 0.5) - 0.25)
  }
  #local Top = box {
    <Left, Height, Back>, <Right, Height + 0.2, End>
    texture {
      function { select(Lit(x, z), 0.75, 0.25) }
      texture_map {
        [0.5 pigment { Spotted(Ceiling, 0.08, 0.3) }]
        [0.5 pigment { color srgb 1 } finish { ambient 0 emission 0.9 diffuse 0 }]
      }
    }
  }
  Put(Top)
#end

// --- the survey ---------------------------------------------------------------------------------

// The length of the ray through the middle of each patch to the first thing it meets, as a laser on
// the camera measures; Range where there is none so near. A line a row, from the top left patch.
#macro Survey(File, Range)
  #local Scene = union {
    object { Ground_Level }
    #for (I, 0, Count - 1) object { Things[I] } #end
  }
  #fopen Table_File File write
  #for (I, 0, Rows - 1)
    #for (J, 0, Columns - 1)
      #local Right = (2 * (J + 0.5) / Columns - 1) * Half_Right;
      #local Up = (1 - 2 * (I + 0.5) / Rows) * Half_Up;
      #local Ray = Turned(<Right, Up, 1>);
      #local Normal = <0, 0, 0>;
      #local Place = trace(Scene, Eye, Ray, Normal);
      #local Depth = Range;
      #if (vlength(Normal) > 0) #local Depth = min(Range, vlength(Place - Eye)); #end
      #write (Table_File, str(Depth, 0, 3), " ")
    #end
    #write (Table_File, "\n")
  #end
  #fclose Table_File
#end
