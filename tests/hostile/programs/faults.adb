--  SPDX-License-Identifier: MIT
--
--  faults.adb - an Ada program that lives on faults: its runtime makes
--  exceptions of SIGSEGV and SIGFPE, and finds their handlers by the address of
--  the instruction that failed. Reads how many rounds; prints what was caught.
with Ada.Text_IO; use Ada.Text_IO;

procedure Faults is
   pragma Suppress (Access_Check);

   type Node;
   type Link is access Node;
   type Node is record
      Value : Long_Integer;
      Next  : Link;
   end record;

   Caught, Missed : Long_Integer := 0;
   Nothing        : Link := null;
   pragma Volatile (Nothing);
   Node_7           : constant Link := new Node'(7, null);
   Rounds         : Long_Integer;

   function Load (L : Link) return Long_Integer;
   pragma No_Inline (Load);
   function Load (L : Link) return Long_Integer is
   begin
      return L.Value;
   end Load;

   procedure Store (L : Link; V : Long_Integer);
   pragma No_Inline (Store);
   procedure Store (L : Link; V : Long_Integer) is
   begin
      L.Value := V;
   end Store;

   function Outer (L : Link) return Long_Integer;
   pragma No_Inline (Outer);
   function Outer (L : Link) return Long_Integer is
   begin
      return Load (L) + 1;
   end Outer;

   function Here (L : Link) return Long_Integer;
   pragma No_Inline (Here);
   function Here (L : Link) return Long_Integer is
   begin
      return L.Value;
   exception
      when others =>
         return -1;
   end Here;

   procedure Half;
   procedure Half is
   begin
      for I in 1 .. Rounds loop
         begin
            if Outer (Nothing) > 0 then
               Missed := Missed + 1;
            end if;
            Missed := Missed + 1;
         exception
            when others =>
               Caught := Caught + 1;
         end;
         begin
            Store (Nothing, I);
            Missed := Missed + 1;
         exception
            when others =>
               Caught := Caught + 1;
         end;
         if Here (Nothing) = -1 then
            Caught := Caught + 1;
         end if;
         Store (Node_7, I);
         if Here (Node_7) /= I or else Outer (Node_7) /= I + 1 then
            Missed := Missed + 1;
         end if;
      end loop;
   end Half;

begin
   Rounds := Long_Integer'Value (Get_Line);
   Half;
   while not End_Of_File loop
      Put_Line (Get_Line);
   end loop;
   Half;
   Put_Line ("caught" & Caught'Image & ", missed" & Missed'Image);
end Faults;
